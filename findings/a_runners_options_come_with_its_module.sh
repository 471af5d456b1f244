#!/usr/bin/env bash
# Apache Beam 2.77.0: the options of a runner that is named by its class exist once its module has been imported.
# Before, PipelineOptions takes --dask_client_address for a flag that nobody has; Pipeline(options=...) imports the
# module, and from then on the same flags are known. So a program can tell a mistyped flag after it has made the
# pipeline, and not before.
#
# Guessed: PipelineOptions, which is given --runner, knows that runner's options.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet 'apache-beam[dask]==2.77.0'
venv/bin/python - <<'PY'
import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions

runner = "apache_beam.runners.dask.dask_runner.DaskRunner"
flags = [f"--runner={runner}", "--dask_client_address=127.0.0.1:8786", "--dask_npartition=8"]


def unknown():
    left = []
    PipelineOptions([]).get_all_options(
        add_extra_args_fn=lambda parser: left.extend(parser.parse_known_args(flags)[1])
    )
    return left


before = unknown()
apache_beam.Pipeline(options=PipelineOptions(flags))
after = unknown()
print(apache_beam.__version__, "before the pipeline:", before, "after it:", after)
assert before == flags[1:]
assert after == flags[2:]
PY

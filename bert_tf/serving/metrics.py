"""Metrics in Prometheus' text format, with TensorFlow Serving's names.

Source: prometheus_exporter.cc and servables/tensorflow/util.cc of TensorFlow Serving. The gauges of
pending requests have names of bert_tf, because TensorFlow Serving's batching differs.
"""

import bisect
import collections
from collections.abc import Mapping

# TensorFlow Serving's path, and the default path of Prometheus.
PATHS = ("/monitoring/prometheus/metrics", "/metrics")
MEDIA_TYPE = "text/plain; version=0.0.4"
_SERVING = ":tensorflow:serving:"
_LIMITS = [10 * 1.8**power for power in range(32)]  # microseconds, up to 20 minutes
_CODES = {200: "OK", 400: "INVALID_ARGUMENT", 408: "DEADLINE_EXCEEDED", 413: "INVALID_ARGUMENT"} | {
    **{429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE"}
}


class Metrics:
    """Counters of the requests to one model."""

    def __init__(self, name: str) -> None:
        self._name, self._rows = name, 0
        self._requests: collections.Counter[str] = collections.Counter()
        self._times: dict[str, list[float]] = {}  # by action: histogram counts, and the sum

    def count(self, action: str, status: int, rows: int, seconds: float) -> None:
        """Counts a request with its HTTP status, number of rows and duration."""
        self._requests[_CODES.get(status, "INTERNAL")] += 1
        self._rows += rows
        times = self._times.setdefault(action.capitalize(), [0] * (len(_LIMITS) + 2))
        times[bisect.bisect_left(_LIMITS, seconds * 1e6)] += 1
        times[-1] += seconds * 1e6

    def text(self, gauges: Mapping[str, int]) -> str:
        """Returns all metrics; ``gauges`` are current values by name."""
        lines = [f"# TYPE {_SERVING}request_count counter"]
        for status, number in sorted(self._requests.items()):
            labels = f'model_name="{self._name}",status="{status}"'
            lines.append(f"{_SERVING}request_count{{{labels}}} {number}")
        lines += [
            f"# TYPE {_SERVING}request_example_count_total counter",
            f'{_SERVING}request_example_count_total{{model="{self._name}"}} {self._rows}',
            f"# TYPE {_SERVING}request_latency histogram",
        ]
        for action, (*counts, total) in sorted(self._times.items()):
            labels, so_far = f'model_name="{self._name}",API="{action}",entrypoint="REST"', 0
            for limit, count in zip([*map("{:g}".format, _LIMITS), "+Inf"], counts, strict=True):
                so_far += int(count)
                bucket = f'{_SERVING}request_latency_bucket{{{labels},le="{limit}"}}'
                lines.append(f"{bucket} {so_far}")
            lines.append(f"{_SERVING}request_latency_sum{{{labels}}} {total:.0f}")
            lines.append(f"{_SERVING}request_latency_count{{{labels}}} {so_far}")
        for name, number in gauges.items():
            lines.append(f"# TYPE :bert_tf:serving:{name} gauge")
            lines.append(f':bert_tf:serving:{name}{{model_name="{self._name}"}} {number}')
        return "\n".join([*lines, ""])

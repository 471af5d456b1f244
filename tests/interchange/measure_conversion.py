"""Run by a test: what a conversion adds to the process' memory, in bytes.

    python measure_conversion.py TINY SOURCE TARGET FORMAT

The bare process has imported everything and converted a tiny model: TINY, of SOURCE's format.
"""

import sys
import tempfile

from bert_tf.interchange.conversion import convert


def memory(kind):
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(f"{kind}:"))
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    tiny, source, target, form = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        convert(tiny, f"{folder}/tiny{'.keras' if form == 'keras' else ''}", form)
    bare = memory("VmRSS")
    convert(source, target, form)
    print(memory("VmHWM") - bare)

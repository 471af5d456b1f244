import pytest

from bert_tf import native_log


@pytest.mark.parametrize(
    "line, has_gpu, noise",
    [
        (b"I0000 00:00:17.68 5278 port.cc:153] oneDNN custom operations are on.", True, True),
        (b"2026-01-01 10:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN", True, True),
        (b"WARNING: All log messages before absl::InitializeLog() is called are", True, True),
        (b"W0000 00:00:1 2 local_rendezvous.cc:412] ... OUT_OF_RANGE: End of sequence", True, True),
        (b"E0000 00:00:1 2 cuda_platform.cc:52] failed call to cuInit: INTERNAL", False, True),
        (b"E0000 00:00:1 2 util.cc:131] oneDNN supports DT_INT64 only on platforms", True, True),
        # Where there is a GPU, that it cannot be used is news.
        (b"E0000 00:00:1 2 cuda_platform.cc:52] failed call to cuInit: INTERNAL", True, False),
        (b"W0000 00:00:1 2 gpu_device.cc:9] Cannot dlopen some GPU libraries.", True, False),
        (b"F0000 00:00:1 2 check.cc:9] Check failed", False, False),
        (b"Traceback (most recent call last):", False, False),
        (b"", False, False),
    ],
)
def test_only_what_tells_nothing_is_dropped(line, has_gpu, noise):
    assert native_log._is_noise(line, has_gpu) is noise

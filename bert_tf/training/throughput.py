"""How fast a training goes."""


def throughput(
    *,
    seconds: float,
    waited: float | None,
    tokens: int,
    examples: int,
    flops: float,
    devices: int,
    peak_tflops: float = 0.0,
) -> dict[str, float]:
    """The figures of some steps, in all and for each device, for TensorBoard.

    ``waited`` are the seconds in which a step had ended and the next one's batch was not there,
    if they were measured.
    ``flops`` are the model's in these steps; with ``peak_tflops``, one device's, ``mfu`` is their
    share of what the devices could have done (Chowdhery et al. 2022, appendix B).
    """
    rates = {"tokens_per_second": tokens / seconds, "examples_per_second": examples / seconds}
    per_device = {f"{name}_per_device": rate / devices for name, rate in rates.items()}
    figures = {**rates, **per_device}
    if waited is not None:
        figures["input_wait_share"] = min(waited / seconds, 1.0)
    if peak_tflops:
        figures["mfu"] = flops / seconds / (devices * peak_tflops * 1e12)
    return figures

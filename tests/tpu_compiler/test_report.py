"""The account of a compiled step, of a small program written by hand."""

import pytest

from bert_tf.tpu_compiler import report

HLO = """HloModule jit_step

%fused (p: f32[8]) -> f32[8] {
  ROOT %inner = f32[8]{0:T(1024)} add(%p, %p)
}

ENTRY %main.9 (a: bf16[16,200]) -> (f32[16,200], pred[7]) {
  %a = bf16[16,200]{1,0:T(8,128)(2,1)} parameter(0), metadata={op_name="a"}
  %t = f32[200,16]{0,1:T(8,128)} fusion(%a), kind=kLoop, calls=%fused, metadata={op_name="step/mul"}
  %both = (f32[16,200]{1,0:T(8,128)S(1)}, pred[7]{0}) fusion(%t, %a), metadata={op_name="step/add"}
  %first = f32[16,200]{1,0:T(8,128)S(1)} get-tuple-element(%both), index=0
  ROOT %end = (f32[16,200]{1,0:T(8,128)}, pred[7]{0}) tuple(%first, %both)
}
"""


def test_instructions_with_what_they_read_and_write_padded_to_tiles():
    found = list(report.instructions(HLO))
    # 16 x 200 is tiled as 16 x 256; transposed by its layout it is just as large.
    a, a_padded = 2 * 16 * 200, 2 * 16 * 256
    t, t_padded = 4 * 16 * 200, 4 * 16 * 256
    assert [(each.plain, each.padded) for each in found] == [
        (a + t, a_padded + t_padded),
        (t + 7 + t + a, t_padded + 7 + t_padded + a_padded),
    ]
    assert [(each.operation, each.source) for each in found] == [
        ("fusion", "step/mul"),
        ("fusion", "step/add"),
    ]
    shown = report.table(found)
    assert len(shown) == 3 and shown[1].startswith("   0.00    0.00  fusion f32[200,16]")


@pytest.mark.parametrize(
    "shape, padded, plain",
    [
        ("u32[12582912,4]{1,0:T(8,128)}", 12_582_912 * 128 * 4, 12_582_912 * 16),
        ("u32[12582912,4]{0,1:T(8,128)}", 12_582_912 * 8 * 4, 12_582_912 * 16),
        ("f32[5]{0:T(1024)}", 4096, 20),
        ("bf16[3,9,130]{2,1,0:T(8,128)(2,1)}", 3 * 16 * 256 * 2, 3 * 9 * 130 * 2),
        ("f32[]", 4, 4),
        ("(pred[3]{0}, s64[2]{0}, token[])", 19, 19),
    ],
)
def test_bytes_of_shapes(shape, padded, plain):
    assert report.array_bytes(shape) == (padded, plain)


def test_the_account_of_a_step():
    found = report.Compiled(
        seconds=61.4, arguments=2 * 10**9, temporaries=3 * 10**9, code=10**8, flops=39.4e12,
        bytes=81.9e9,
    )  # fmt: skip
    shown = report.lines(found, report.CHIPS["v5e"], model_flops=29.6e12)
    assert shown == [
        "Compiled in 61 s.",
        "Memory: 5.1 GB of the chip's 16: 2.0 variables and batch, 3.0 temporaries, 0.1 program.",
        "Work: 39.4 TFLOP, 0.2 s at 197 TFLOP/s; 81.9 GB accessed, 0.1 s at 819 GB/s.",
        "Roofline: 0.2 s a step, bound by arithmetic; MFU 75% at most, of 29.6 TFLOP of the "
        "model's matrix products.",
    ]
    small = report.Chip(197, 8.19, 5)
    assert "bound by memory; MFU 2% at most" in report.lines(found, small, 39.4e12)[3]
    assert report.lines(found, small, 29.55e12)[1].endswith("0.1 program. TOO MUCH.")

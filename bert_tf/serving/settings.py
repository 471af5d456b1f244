"""The settings of ``bert_tf.serve``: every flag, with the limits of requests."""

import dataclasses

from bert_tf.cli import flag_fields
from bert_tf.cli.flag_rules import names_a_model, required


@dataclasses.dataclass(frozen=True)
class ServeSettings:
    """Every flag."""

    model: str = flag_fields.string(
        None,
        "Serve this: a run, an export, or another checkpoint, which is exported for the time.",
        rules=[required("serve needs a run, an export or a checkpoint")],
    )
    name: str | None = flag_fields.string(
        None,
        "Give the model this name, a part of the address that clients call; by default its "
        "directory's.",
        rules=[names_a_model],
    )
    special_tokens_in_texts: bool | None = flag_fields.special_tokens("the model was trained")
    host: str = flag_fields.string(
        "127.0.0.1",
        "Listen at this address: 127.0.0.1 is reached from this machine alone, 0.0.0.0 from all "
        "that reach the machine.",
    )
    port: int = flag_fields.integer(
        8501, "Listen at this port; 0 is any free one, which is printed.", least=0, most=65535
    )
    max_rows: int = flag_fields.integer(256, "Refuse requests of more rows.", least=1, is_rare=True)
    max_bytes: int = flag_fields.integer(
        1 << 20, "Refuse requests of more bytes.", least=256, is_rare=True
    )
    max_waiting: int = flag_fields.integer(
        64,
        "Refuse requests (503) while so many wait or are answered.",
        least=1,
        is_rare=True,
    )
    max_wait_seconds: int = flag_fields.integer(
        30, "Give up requests (503) that have waited so long.", least=1, is_rare=True
    )

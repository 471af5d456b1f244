"""The data sets of a task: one to train on, some to evaluate on, some to predict."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from bert_tf.tasks.examples import Examples

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class DataSets(Generic[T]):
    """What was read for a task.

    Attributes:
        task: the task's name, for messages.
        train: ``None`` where there is nothing to train on.
        dev: by the set's name, labelled.
        test: by the set's name; labels do not count.

    Raises:
        ValueError: a set to evaluate on is empty, or a set to predict has its name.
    """

    task: str
    train: Examples[T] | None
    dev: Mapping[str, Examples[T]]
    test: Mapping[str, Examples[T]]

    def __post_init__(self) -> None:
        for name, examples in self.dev.items():
            if not examples.items:
                raise ValueError(f"{self.task}: {name} is empty: expected examples to evaluate on.")
            if name in self.test:
                raise ValueError(
                    f"{self.task}: a set to evaluate on and one to predict are both called "
                    f"{name}: expected names that differ."
                )

    def training_items(self) -> list[T]:
        """The examples to train on.

        Raises:
            ValueError: there are none.
        """
        if self.train is None or not self.train.items:
            raise ValueError(f"{self.task} has no training set: expected one to train on.")
        return self.train.items

    def items(self, name: str) -> list[T]:
        """The examples of a set to evaluate on or to predict.

        Raises:
            ValueError: there is no such set.
        """
        examples = {**self.dev, **self.test}.get(name)
        if examples is None:
            known = ", ".join([*self.dev, *self.test]) or "none"
            raise ValueError(f"{self.task} has no set {name!r}: expected one of {known}.")
        return examples.items

    def check_labelled(self, find_fault: Callable[[T], str | None]) -> None:
        """Checks every example to train or to evaluate on.

        Args:
            find_fault: "the example 7 has no label: expected ...", or ``None``.

        Raises:
            ValueError: the first fault.
        """
        train = {} if self.train is None else {"train": self.train}
        for name, examples in {**train, **self.dev}.items():
            for item in examples.items:
                fault = find_fault(item)
                if fault is not None:
                    raise ValueError(f"{self.task}, {name}: {fault}.")

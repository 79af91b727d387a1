"""Engines: the same teachers, trained in different layouts. `build_engine` picks one by a rule."""

from teacher_student.teachers.engines.choose import Network, build_engine, chunk_size, initial_stack, num_classes_of
from teacher_student.teachers.engines.interface import Engine, Stack

__all__ = ["Engine", "Network", "Stack", "build_engine", "chunk_size", "initial_stack", "num_classes_of"]

"""A scenario of harm.py: a program, its arguments, and the condition that must hold."""
import dataclasses


@dataclasses.dataclass
class Scenario:
    name: str
    must: str                # the condition that must hold
    program: str             # src/bin/PROGRAM.rs or c/PROGRAM.c
    arguments: tuple = ()    # {built} stands for the folder of the compiled C files
    seconds: int = 20        # longer counts as a hang
    baseline: bool = True    # whether it also runs unmonitored first
    afterwards: tuple = ()   # arguments of a second, unmonitored run, whose verdict counts
    tries: int = 1           # harmed only if every try fails: for scenarios that compare times

# SPDX-License-Identifier: Apache-2.0
"""What the ranks tell each other when a turn of an optimizer ends.

A turn is everything between two calls of `step()`. Each rank reduces every parameter at least once
in a turn, and more often if it called backward more often; every such time is a round. Ranks may
differ in this, so at its end a rank says how many rounds it needs, and all of them run the largest
number, with zeros where a rank has nothing to add. A rank that must have a result earlier, because
its script looks at a gradient, says its word earlier and says another later; the others wait for a
word that is final.

The word of a rank is one integer. All words travel in one allreduce(Sum) of a vector with a place
for each rank: a rank that has joined adds nothing, and its place stays 0.
"""

from typing import NamedTuple

ROUNDS_MAX = (1 << 12) - 1
_ROUND_BITS = 12
_DISCARD_BITS = 16
_TURN_BITS = 31

_era = 0


def era():
    """Changes whenever the ranks start to count anew: after a join, and in another world."""
    return _era


def next_era():
    global _era
    _era += 1


class Word(NamedTuple):
    turn: int  # turns ended before this one
    rounds: int  # rounds this rank has run or needs; of a final word, when it came to step()
    discards: int  # bit k: results were thrown away after round k
    is_final: bool  # is it in step(), so that nothing more comes from it in this turn?
    is_asking: bool  # are there parameters of which it is not known whether all ranks have them?
    is_changed: bool  # has its script changed gradients since they were reduced?

    def pack(self):
        value = self.turn % (1 << _TURN_BITS)
        value = value << _DISCARD_BITS | self.discards
        value = value << _ROUND_BITS | min(self.rounds, ROUNDS_MAX)
        return value << 4 | self.is_changed << 3 | self.is_final << 2 | self.is_asking << 1 | 1

    @staticmethod
    def unpack(value):
        """The word of a rank; None if it has joined."""
        if value == 0:
            return None
        is_asking, is_final, is_changed = (bool(value >> bit & 1) for bit in (1, 2, 3))
        value >>= 4
        rounds = value & ROUNDS_MAX
        value >>= _ROUND_BITS
        discards = value & ((1 << _DISCARD_BITS) - 1)
        return Word(value >> _DISCARD_BITS, rounds, discards, is_final, is_asking, is_changed)


def discard_bit(round_):
    return 1 << min(round_, _DISCARD_BITS - 1)


def find_conflict(words, ranks, what):
    """Why the ranks are not in the same turn, naming two of them; None if they are."""
    present = [(rank, word) for rank, word in zip(ranks, words, strict=True) if word is not None]
    rank, word = present[0]
    for other, theirs in present[1:]:
        if theirs.turn != word.turn:
            return (
                f"Ranks are in different steps of {what}: rank {rank} has made {word.turn} before "
                f"this one, rank {other} has made {theirs.turn}. Every rank must call step() (or "
                "synchronize()) equally often, or call hvd.join() when it has no more data."
            )
        if theirs.discards != word.discards:
            first, second = (rank, other) if word.discards else (other, rank)
            return (
                f"Rank {first} threw gradients of {what} away (zero_grad() after a finished "
                f"backward) that rank {second} is about to apply. Between two steps, all ranks "
                "must call zero_grad() at the same places, or none."
            )
    return _find_early_change(present, what)


def _find_early_change(present, what):
    """A rank that has changed a gradient to which another one still adds."""
    last, most = max(present, key=lambda pair: pair[1].rounds)
    for rank, word in present:
        if word.is_changed and word.rounds < most.rounds:
            return (
                f"Rank {rank} changed gradients of {what} (clipping, for instance) before rank "
                f"{last} had added all of its own: it called backward more often. Call "
                "optimizer.synchronize() on all ranks before gradients are changed, and step() "
                "with optimizer.skip_synchronize()."
            )
    return None

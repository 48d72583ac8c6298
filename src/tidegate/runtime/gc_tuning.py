"""The search for garbage, set for a process that stays.

Almost everything here goes when its last reference does. The rest is looked for by walking over all objects, and by
default that begins anew with every few hundred new ones: of the time of a busy process it takes a twelfth, in pauses
that those who wait can feel.
"""

import gc

_NEW = 50_000
"""So many objects more than before are looked at together."""
_YOUNG, _OLD = 20, 50


def tune_gc() -> None:
    """Call it when everything is set up: what is there now stays, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW, _YOUNG, _OLD)

"""Backends by rules over captions: no server, no key, no model to download; the default for real data.

They judge an image by its own captions, so they need some (five an image serve well, one hardly), and they know
English captions of photos. `warm` reads many captions at once before a run. Needs the extra `lexical`.
"""

from repair.backends.lexical.editor import LexicalTextEditor
from repair.backends.lexical.instructor import LexicalInstructor
from repair.backends.lexical.parsing import warm
from repair.backends.lexical.planner import LexicalPlanner
from repair.backends.lexical.verifier import LexicalVerifier

__all__ = ["LexicalInstructor", "LexicalPlanner", "LexicalTextEditor", "LexicalVerifier", "warm"]

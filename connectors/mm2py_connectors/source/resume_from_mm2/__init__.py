"""Resumes a flow where MirrorMaker 2 was stopped or killed: see ``ResumeFromMm2``.

Nothing outside imports more than these names (docs/decisions/0009-go-on-behind-mirrormaker-2-by-content.md).
"""

from mm2py_connectors.source.resume_from_mm2.resume import SEARCHING, ResumeFromMm2

__all__ = ["SEARCHING", "ResumeFromMm2"]

"""What the pages of a site have in common, learnt from pages that were worked on, and cut."""

from .store import SiteTemplates
from .template import NOTHING, Template

__all__ = ["NOTHING", "SiteTemplates", "Template"]

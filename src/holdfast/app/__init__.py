"""`Holdfast`: wiring. The only place that picks implementations."""

from holdfast.app.holdfast import Holdfast

__all__ = ["Holdfast"]

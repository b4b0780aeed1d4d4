"""Figures drawn by matplotlib: functions that take ``ax=`` and return it."""

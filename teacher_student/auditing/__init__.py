"""Audits: machinery that must reject a wrong mechanism, and proves it on broken twins."""

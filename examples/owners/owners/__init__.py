"""Organisations as teachers, on Flower: owners answer questions about public points, and one server trains a student."""

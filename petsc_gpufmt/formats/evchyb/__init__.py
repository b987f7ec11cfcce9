"""Vectorised CSR and ELL parts in one format."""

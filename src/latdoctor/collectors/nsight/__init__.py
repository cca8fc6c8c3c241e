"""Nsight Systems exports, databases of nvprof, and the tables that both print."""

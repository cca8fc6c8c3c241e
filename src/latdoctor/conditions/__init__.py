"""conditions"""

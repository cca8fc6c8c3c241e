"""evidence.redaction"""

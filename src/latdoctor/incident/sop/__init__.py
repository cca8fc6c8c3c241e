"""incident.sop"""

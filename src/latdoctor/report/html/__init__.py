"""The report for people who would rather look: one HTML file, for a diagnosis or for a whole incident.

`building` says what stands on a page (`model`); each of the modules that it asks writes some of the sections.
`html` makes it text, `charts` what the charting library asks for, `assets` holds what is put into every page.
"""

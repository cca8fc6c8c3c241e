"""The HTML report of a diagnosis or an incident: one file without network access.

`diagnosis_page` and `incident_page` compose a page from typed values (`document`), `charts` writes the options of the
charting library, and `render` fills the templates in `templates/`, with the style and scripts of `files/`.
"""

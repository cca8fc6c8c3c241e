"""Who is told of an incident, and how.

`telling` says what of it is worth telling, `due` which messages of that have not been sent, and `pagerduty`, `slack`
and `webhook` make them: all of these are functions of the journal, and know no secret. `sealing` puts the secret in,
`sending` tries once, `delivering` journals each try and tries again. `receiver` is one of the configuration's.
"""

"""Who may do what: authentication, authorization, node restriction, certificates, credentials and limits.

START HERE: a request goes through `authentication.py` (who is it), `impersonation.py` (as whom), then
`authorization.py` (may they); writes also through `restriction.py` (nodes and drivers write only their own)
and `escalation.py` (nobody grants more than they have). `limits.py` bounds how much anybody may take.
"""

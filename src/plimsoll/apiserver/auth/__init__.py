"""Authentication, authorization and credentials.

START HERE: a request passes `authentication.py`, `impersonation.py` and `authorization.py` (the Node
authorizer, then RBAC); writes to roles and bindings are also checked by `escalation.py`, and writes of nodes
and drivers by `admission/node_restriction.py`. Certificates, tokens and kubeconfigs are issued by
`certificates.py`, `service_accounts.py`, `token_file.py` and `credentials.py`.
"""

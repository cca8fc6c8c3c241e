"""Notifications of incidents to PagerDuty, Slack and webhooks.

`messages` derives notices from the journal, `outbox` selects those not sent yet, and `pagerduty`, `slack` and `webhook`
format them, all without secrets. `transport` adds the secrets and sends, `journaled_delivery` journals each attempt and
retries. `receiver_config` is a configured receiver.
"""

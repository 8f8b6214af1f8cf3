"""What all tables of settings have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SettingsTable(BaseModel):
    """Frozen, and strict about names."""

    # Inputs are left out of pydantic's own errors, should one ever be shown: they may hold a password.
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True
    )

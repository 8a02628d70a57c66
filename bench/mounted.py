"""The bench's agents in another server: `app` alone, `api` below FastAPI. The environment names the store."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI

import dragoman

app = dragoman.create_app([str(Path(__file__).with_name("agents.py"))])

api = FastAPI(lifespan=app.lifespan)
api.mount("/a2a", app)
api.mount("/.well-known", app.well_known)

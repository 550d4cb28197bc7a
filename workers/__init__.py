"""Celery workers: tasks by name, the reconciler, the engines' announcer, page sources.

Importing this package imports no Celery; `pagemill.workers.app:app` is the application.
"""

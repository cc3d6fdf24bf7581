"""Transcripts: the language, its commands, and the scripted deployment they run on."""

// Package chatfile reads the chat files of Gemini CLI itself: <…>/session-*.jsonl, or those of
// older releases, session-*.json. A session of a bridge has a notebook instead. Chat files are
// supported so that a session begun without a bridge is not lost. Package gemini turns the result
// into blocks.
package chatfile

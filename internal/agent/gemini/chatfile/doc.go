// Package chatfile reads the chat files of Gemini CLI itself: <…>/session-*.jsonl, or those of older
// releases, session-*.json. A session of a bridge has a notebook instead; chat files are read so that
// what was begun without one is not lost. Package gemini makes blocks of what it returns.
package chatfile

// Package attachment has the data stored with a session in addition to its events: files of
// prompts, and images in tool results. The id of an [Attachment] is derived from its content, so
// storing it again changes nothing.
package attachment

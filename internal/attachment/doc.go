// Package attachment has what is stored with a session in addition to its events: files that prompts come with, and images in
// results of tools. The id of an
// [Attachment] follows from its content, so that storing it again changes nothing.
package attachment

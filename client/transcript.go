package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"unicode/utf8"
)

// TranscriptFile is one of the agent's own files.
type TranscriptFile struct {
	Path    string
	Version int64 // incremented when the agent rewrites the file
	Data    []byte
}

// MarshalJSON encodes the file as the API does: its content is text if it is UTF-8, otherwise
// base64.
func (f TranscriptFile) MarshalJSON() ([]byte, error) {
	p := transcriptPiece{Path: f.Path, Version: f.Version, Size: int64(len(f.Data)), Encoding: "utf-8", Content: string(f.Data)}
	if !utf8.Valid(f.Data) {
		p.Encoding, p.Content = "base64", base64.StdEncoding.EncodeToString(f.Data)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(p)
	return b.Bytes(), err
}

// TranscriptPiece is a part of a file. The pieces of the same path and version, in order, make up
// the file. A piece with Offset 0 starts the file. If the agent rewrites the file while it is read,
// the file starts again with another version.
type TranscriptPiece struct {
	Path    string
	Version int64
	Offset  int64
	Data    []byte
}

// transcriptPiece is a piece as the API sends it.
type transcriptPiece struct {
	Path     string `json:"path"`
	Version  int64  `json:"version"`
	Offset   int64  `json:"offset,omitempty"`
	Size     int64  `json:"size"`
	Encoding string `json:"encoding"`
	Content  string `json:"content"`
}

func (p transcriptPiece) decode() (TranscriptPiece, error) {
	out := TranscriptPiece{Path: p.Path, Version: p.Version, Offset: p.Offset, Data: []byte(p.Content)}
	if p.Encoding != "base64" {
		return out, nil
	}
	var err error
	if out.Data, err = base64.StdEncoding.DecodeString(p.Content); err != nil {
		err = fmt.Errorf("decode a part of %s: %w", p.Path, err)
	}
	return out, err
}

// TranscriptPieces reads the agent's own files, or only the file at path, in pieces of about 1 MiB.
// A value that is yielded with an error is invalid and the last one.
func (c *Client) TranscriptPieces(ctx context.Context, sessionID, path string) iter.Seq2[TranscriptPiece, error] {
	return func(yield func(TranscriptPiece, error) bool) {
		query := url.Values{"limit": {"100"}}
		if path != "" {
			query.Set("path", path)
		}
		for {
			var page struct {
				Files      []transcriptPiece `json:"files"`
				NextCursor string            `json:"nextCursor"`
			}
			if _, err := c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/transcript?"+query.Encode(), nil, &page); err != nil {
				yield(TranscriptPiece{}, err)
				return
			}
			for _, p := range page.Files {
				piece, err := p.decode()
				if !yield(piece, err) || err != nil {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			query.Set("cursor", page.NextCursor)
		}
	}
}

// Transcripts reads the agent's own files one after the other. It holds one file and one page in
// memory.
func (c *Client) Transcripts(ctx context.Context, sessionID string) iter.Seq2[TranscriptFile, error] {
	return func(yield func(TranscriptFile, error) bool) {
		var file *TranscriptFile
		for p, err := range c.TranscriptPieces(ctx, sessionID, "") {
			if err != nil {
				yield(TranscriptFile{}, err)
				return
			}
			switch {
			case file != nil && file.Path == p.Path && p.Offset > 0:
				file.Data = append(file.Data, p.Data...)
				continue
			case file != nil && file.Path != p.Path:
				if !yield(*file, nil) {
					return
				}
			}
			file = &TranscriptFile{Path: p.Path, Version: p.Version, Data: p.Data}
		}
		if file != nil {
			yield(*file, nil)
		}
	}
}

// Transcript reads the agent's own files in one response, as the API sends them. [Client.Transcripts] reads them in pages.
func (c *Client) Transcript(ctx context.Context, sessionID string) (raw json.RawMessage, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/transcript", nil, &raw)
	return raw, err
}

// TranscriptFile reads one of the agent's own files in one response. [Client.TranscriptPieces] reads it in pieces.
func (c *Client) TranscriptFile(ctx context.Context, sessionID, path string) (data []byte, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/transcript?path="+url.QueryEscape(path), nil, &data)
	return data, err
}

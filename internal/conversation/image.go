package conversation

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// The bounds of images in results of tools.
const (
	MaxImageBytes     = 10 << 20 // size of one image
	MaxBlockImages    = 16
	MaxTurnImages     = 100
	MaxTurnImageBytes = 64 << 20 // total size of the images of a turn
)

// Image is an image in the result of a tool. Its bytes are stored with the session, outside the events.
type Image struct {
	ID        string `json:"id"` // derived from the bytes: the same image has the same id
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`
	// Omitted means that the bytes are not stored, because of a limit or because they contain the
	// value of a secret.
	Omitted bool `json:"omitted,omitempty"`
}

// ImageData is an image with its bytes.
type ImageData struct {
	Image
	Data []byte
}

// NewImage returns data as an image; false if it is not an image, has a type that browsers must not
// display, or is too large.
func NewImage(data []byte) (ImageData, bool) {
	kind := imageType(data)
	if kind == "" || len(data) > MaxImageBytes {
		return ImageData{}, false
	}
	return ImageData{Image: Image{ID: AttachmentID(data), MediaType: kind, Bytes: int64(len(data))}, Data: data}, true
}

// DecodeImage is NewImage for base64, with or without the header of a data URL.
func DecodeImage(encoded string) (ImageData, bool) {
	if rest, ok := cutDataURL(encoded); ok {
		encoded = rest
	}
	if len(encoded) == 0 || base64.StdEncoding.DecodedLen(len(encoded)) > MaxImageBytes+2 {
		return ImageData{}, false
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ImageData{}, false
	}
	return NewImage(data)
}

// cutDataURL returns the content of a base64 data URL.
func cutDataURL(s string) (string, bool) {
	const scheme, mark = "data:", ";base64,"
	if len(s) < len(scheme) || s[:len(scheme)] != scheme {
		return "", false
	}
	at := strings.Index(s[:min(len(s), maxLabelBytes)], mark)
	if at < 0 {
		return "", false
	}
	return s[at+len(mark):], true
}

// AttachmentID returns the id of an attachment of a session, derived from the bytes and from its
// labels.
func AttachmentID(data []byte, labels ...string) string {
	h := sha256.New()
	sum := sha256.Sum256(data)
	h.Write(sum[:])
	for _, label := range labels {
		sum = sha256.Sum256([]byte(label))
		h.Write(sum[:])
	}
	return attachmentPrefix + hex.EncodeToString(h.Sum(nil)[:16])
}

// attachmentPrefix is the prefix of the ids of attachments.
const attachmentPrefix = "att_"

// imageType returns the type of an image based on its first bytes; empty if a browser must not
// display it.
func imageType(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(data, []byte("GIF87a")), bytes.HasPrefix(data, []byte("GIF89a")):
		return "image/gif"
	case len(data) > 14 && string(data[:4]) == "RIFF" && string(data[8:14]) == "WEBPVP":
		return "image/webp"
	}
	return ""
}

// References returns the images without their bytes; nil for none.
func References(images []ImageData) []Image {
	var out []Image
	for _, i := range images {
		out = append(out, i.Image)
	}
	return out
}

// Keep counts an image of the turn, and reports whether it is within the limits. A repeated image
// is not counted again.
func (l *Limiter) Keep(i Image) bool {
	switch {
	case slices.Contains(l.Images, i.ID):
		return false
	case len(l.Images) >= MaxTurnImages, l.ImageBytes+i.Bytes > MaxTurnImageBytes:
		return false
	}
	l.Images = append(l.Images, i.ID)
	l.ImageBytes += i.Bytes
	return true
}

// images returns the images of a block within the bounds. It marks those that were not kept.
func (l *Limiter) images(images []Image) []Image {
	if len(images) == 0 {
		return nil
	}
	out := slices.Clone(images[:min(len(images), MaxBlockImages)])
	for i := range out {
		out[i].ID, out[i].MediaType = BoundedID(out[i].ID), head(out[i].MediaType, MaxIDBytes)
		out[i].Omitted = out[i].Omitted || !slices.Contains(l.Images, out[i].ID)
	}
	return out
}

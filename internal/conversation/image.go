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
	MaxImageBytes     = 10 << 20 // of one
	MaxBlockImages    = 16
	MaxTurnImages     = 100
	MaxTurnImageBytes = 64 << 20 // of all of a turn together
)

// Image is an image in the result of a tool. Its bytes are stored with the session, outside the events.
type Image struct {
	ID        string `json:"id"` // follows from the bytes: the same image has the same id
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`
	// Omitted: the bytes are not stored, because a bound was reached or a secret's value is in them.
	Omitted bool `json:"omitted,omitempty"`
}

// ImageData is an image with its bytes.
type ImageData struct {
	Image
	Data []byte
}

// NewImage returns the image that data is; false if it is none, is of a type that browsers are not shown, or is too large.
func NewImage(data []byte) (ImageData, bool) {
	kind := imageType(data)
	if kind == "" || len(data) > MaxImageBytes {
		return ImageData{}, false
	}
	return ImageData{Image: Image{ID: AttachmentID(data), MediaType: kind, Bytes: int64(len(data))}, Data: data}, true
}

// DecodeImage is NewImage of what is encoded in base64, with or without the beginning of a data URL.
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

// cutDataURL returns what follows the header of a data URL in base64.
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

// AttachmentID returns the id of an attachment of a session. It follows from the bytes, and from
// whatever else it is stored with.
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

// attachmentPrefix begins the ids of attachments.
const attachmentPrefix = "att_"

// imageType is the type of an image by its first bytes; empty for what is none that a browser may be shown.
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

// References are the images without their bytes; nil for none.
func References(images []ImageData) []Image {
	var out []Image
	for _, i := range images {
		out = append(out, i.Image)
	}
	return out
}

// Keep counts an image of the turn, and reports whether it is within the limits. One that the turn
// has already is not again.
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

// images are those of a block within the bounds. Those that were not kept are marked.
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

package bridge

import (
	"encoding/base64"
	"io"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
)

// Bounds of the images that are sent to a model. Model APIs reject larger ones; the agent can still
// read the files.
const (
	MaxImageBytes  = 5 << 20
	maxImagesBytes = 15 << 20 // total per prompt
)

// Image is an image with its bytes in base64.
type Image struct {
	stdio.Image
	Data string
}

// URL returns the image as a data URL.
func (i Image) URL() string { return "data:" + i.MediaType + ";base64," + i.Data }

// ReadImages reads the images of a prompt. It skips those that are too large or cannot be read.
func ReadImages(images []stdio.Image) []Image {
	var out []Image
	room := int64(maxImagesBytes)
	for _, i := range images {
		data, err := readImage(i.Path)
		if err != nil || int64(len(data)) > min(MaxImageBytes, room) {
			continue
		}
		room -= int64(len(data))
		out = append(out, Image{i, base64.StdEncoding.EncodeToString(data)})
	}
	return out
}

func readImage(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened only for reading
	return io.ReadAll(io.LimitReader(f, MaxImageBytes+1))
}

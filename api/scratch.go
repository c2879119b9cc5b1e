package api

import (
	"errors"
	"os"
)

// scratchFile returns an open file without a name. Its content ends with the process, however that
// ends: it may be a conversation that is purged later.
func scratchFile() (*os.File, error) {
	f, err := os.CreateTemp("", "overwinter-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

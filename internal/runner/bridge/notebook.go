package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// OpenNotebook opens an append-only file, or creates it, and returns its content. It terminates a
// last line that a kill has truncated.
func OpenNotebook(name string) (file *os.File, past []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open the notebook: %w", err)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, nil, err
	}
	past, err = os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	file, err = os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if len(past) > 0 && past[len(past)-1] != '\n' {
		if _, err := file.WriteString("\n"); err != nil {
			return nil, nil, errors.Join(err, file.Close())
		}
	}
	return file, past, nil
}

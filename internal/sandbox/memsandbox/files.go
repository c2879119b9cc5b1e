package memsandbox

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// file is immutable: writing creates another one, so copies of a tree are shallow.
type file struct {
	data []byte
	mode fs.FileMode
}

type files map[string]file

// tree contains the files of one sandbox by absolute path. Directories are implied.
type tree struct {
	mu    sync.Mutex
	files files
}

func (t *tree) copy() files {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.files)
}

func (t *tree) write(name string, data []byte, mode fs.FileMode) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for have := range t.files {
		if strings.HasPrefix(have, name+"/") {
			return fmt.Errorf("%s is a directory", name)
		}
		if strings.HasPrefix(name, have+"/") {
			return fmt.Errorf("%s is not a directory", have)
		}
	}
	t.files[name] = file{bytes.Clone(data), mode}
	return nil
}

func (t *tree) read(name string) (file, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.files[name]
	return f, ok
}

// WriteFile implements driver.Driver.
func (d *Driver) WriteFile(ctx context.Context, id, name string, data []byte, mode fs.FileMode) error {
	_, err := call(ctx, d, OpWriteFile, id, func() (struct{}, error) {
		b, err := d.live("write file", id)
		if err != nil {
			return struct{}{}, err
		}
		if err := b.files.write(name, data, mode); err != nil {
			return struct{}{}, &driver.Error{Code: driver.Invalid, Op: "write file", ID: id, Err: err}
		}
		return struct{}{}, nil
	})
	return err
}

// ReadFile implements driver.Driver.
func (d *Driver) ReadFile(ctx context.Context, id, name string) ([]byte, error) {
	return call(ctx, d, OpReadFile, id, func() ([]byte, error) {
		b, err := d.live("read file", id)
		if err != nil {
			return nil, err
		}
		f, ok := b.files.read(name)
		if !ok {
			return nil, driver.Errorf(driver.NoFile, "read file", id, "%s: %w", name, fs.ErrNotExist)
		}
		return bytes.Clone(f.data), nil
	})
}

// Files are the files of a sandbox, for a process or a test.
type Files struct{ t *tree }

// Files returns the files of a sandbox, running or ended; nil for an unknown one.
func (d *Driver) Files(id string) *Files {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.sandboxes[id]; b != nil {
		return &Files{b.files}
	}
	return nil
}

// Read returns a file.
func (f *Files) Read(name string) ([]byte, error) {
	got, ok := f.t.read(name)
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return bytes.Clone(got.data), nil
}

// Write replaces a file.
func (f *Files) Write(name string, data []byte, mode fs.FileMode) error {
	return f.t.write(name, data, mode)
}

// Append appends to a file, which need not exist.
func (f *Files) Append(name string, data []byte) error {
	got, ok := f.t.read(name)
	if !ok {
		got.mode = 0o644
	}
	return f.t.write(name, append(bytes.Clone(got.data), data...), got.mode)
}

// Remove deletes a file.
func (f *Files) Remove(name string) {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	delete(f.t.files, name)
}

// Mode returns the permission bits of a file; 0 if there is none.
func (f *Files) Mode(name string) fs.FileMode {
	got, _ := f.t.read(name)
	return got.mode
}

// List returns the paths of all files, sorted.
func (f *Files) List() []string {
	return slices.Sorted(maps.Keys(f.t.copy()))
}

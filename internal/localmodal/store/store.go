// Package store stores small records, one JSON file each, so that they survive the process. When
// Put returns, the record is completely on disk: it is written to a temporary file, which is then
// renamed.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/durable"
)

const (
	extension = ".json"
	stripes   = 64 // approximate number of concurrent writers
)

// Collection is a set of records by id, all of them also in memory. It is safe for concurrent use.
// Returned values are shared and must not be modified.
type Collection[T any] struct {
	dir   string
	seed  maphash.Seed
	locks [stripes]sync.Mutex // for writers, by hash of the id

	mu      sync.RWMutex
	records map[string]T
}

// Open reads the collection in dir, and creates it if necessary. Only the owner may read it.
func Open[T any](dir string) (*Collection[T], error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	c := &Collection[T]{dir: dir, seed: maphash.MakeSeed(), records: map[string]T{}}
	for _, e := range entries {
		if err := c.load(e.Name()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Collection[T]) load(name string) error {
	path := filepath.Join(c.dir, name)
	escaped, ok := strings.CutSuffix(name, extension)
	if !ok { // left by an interrupted write
		return os.Remove(path)
	}
	id, err := url.PathUnescape(escaped)
	if err != nil {
		return fmt.Errorf("open record %s: %w", path, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("open record: %w", err)
	}
	var record T
	if err := json.Unmarshal(b, &record); err != nil {
		return fmt.Errorf("open record %s: %w", path, err)
	}
	c.records[id] = record
	return nil
}

func (c *Collection[T]) path(id string) string {
	return filepath.Join(c.dir, url.PathEscape(id)+extension)
}

// lock serializes the writers of a record.
func (c *Collection[T]) lock(id string) func() {
	mu := &c.locks[maphash.String(c.seed, id)%stripes]
	mu.Lock()
	return mu.Unlock
}

// Put stores a record and replaces an existing one with that id.
func (c *Collection[T]) Put(id string, record T) error {
	defer c.lock(id)()
	b, err := json.Marshal(record)
	if err == nil {
		err = durable.WriteFile(c.path(id), b)
	}
	if err != nil {
		return fmt.Errorf("store record %s: %w", id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records[id] = record
	return nil
}

// Delete removes a record. It returns nil if the record does not exist.
func (c *Collection[T]) Delete(id string) error {
	defer c.lock(id)()
	if err := os.Remove(c.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete record: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.records, id)
	return nil
}

// Get returns the record with that id.
func (c *Collection[T]) Get(id string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	record, ok := c.records[id]
	return record, ok
}

// Find returns a record that match accepts.
func (c *Collection[T]) Find(match func(T) bool) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, record := range c.records {
		if match(record) {
			return record, true
		}
	}
	var none T
	return none, false
}

// All returns the records in no particular order.
func (c *Collection[T]) All() []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]T, 0, len(c.records))
	for _, record := range c.records {
		all = append(all, record)
	}
	return all
}

package apitest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

type secretRow struct {
	info   secret.Info
	sealed []byte
}

// SecretPut stores a sealed secret.
func (m *Store) SecretPut(_ context.Context, name string, sealed []byte, hosts ...string) (secret.Info, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.faults["SecretPut"]; err != nil {
		return secret.Info{}, false, err
	}
	now := time.Now().UTC()
	row, old := m.secrets[name]
	if !old {
		row.info = secret.Info{Name: name, CreatedAt: now}
	}
	row.info.UpdatedAt, row.info.Hosts, row.sealed = now, hosts, sealed
	m.secrets[name] = row
	return row.info, !old, nil
}

// SecretsList implements api.Store. The secrets are sorted by name.
func (m *Store) SecretsList(context.Context) ([]secret.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.faults["SecretsList"]; err != nil {
		return nil, err
	}
	var out []secret.Info
	for _, name := range slices.Sorted(maps.Keys(m.secrets)) {
		out = append(out, m.secrets[name].info)
	}
	return out, nil
}

// SecretsPresent returns the names of stored secrets among the given names.
func (m *Store) SecretsPresent(_ context.Context, names []string) ([]string, error) {
	leave, err := m.enter("SecretsPresent")
	if err != nil {
		return nil, err
	}
	defer leave()
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := m.secrets[name]; return !ok }), nil
}

// SecretDelete deletes a secret.
func (m *Store) SecretDelete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.faults["SecretDelete"]; err != nil {
		return err
	}
	if _, ok := m.secrets[name]; !ok {
		return failure.Errorf(failure.NoSecret, "there is no secret %s", name)
	}
	delete(m.secrets, name)
	return nil
}

// Sealed returns the sealed value of a stored secret.
func (m *Store) Sealed(name string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.secrets[name].sealed
}

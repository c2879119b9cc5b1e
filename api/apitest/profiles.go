package apitest

import (
	"context"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/profile"
)

// profileRow is a profile with all its versions, oldest first.
type profileRow struct {
	versions []profile.Profile
	deleted  bool
}

// ProfileList implements api.Store. It returns all items in one page.
func (m *Store) ProfileList(context.Context, int, string) ([]profile.Profile, string, error) {
	leave, err := m.enter("ProfileList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	var out []profile.Profile
	for _, row := range slices.Backward(m.profiles) {
		if !row.deleted {
			out = append(out, row.versions[len(row.versions)-1])
		}
	}
	return out, "", nil
}

// ProfileGet implements api.Store.
func (m *Store) ProfileGet(_ context.Context, idOrName string, version int64) (profile.Profile, error) {
	leave, err := m.enter("ProfileGet")
	if err != nil {
		return profile.Profile{}, err
	}
	defer leave()
	for _, row := range m.profiles {
		newest := row.versions[len(row.versions)-1]
		if newest.ID != idOrName && (newest.Name != idOrName || row.deleted) {
			continue
		}
		switch {
		case version == 0 && !row.deleted:
			return newest, nil
		case version > 0 && version <= newest.Version:
			return row.versions[version-1], nil
		case version > 0:
			return profile.Profile{}, failure.Errorf(failure.NoVersion, "profile %s has no version %d; its newest is %d", newest.ID, version, newest.Version)
		}
	}
	return profile.Profile{}, failure.Errorf(failure.NoProfile, "there is no profile %s", idOrName)
}

// ProfileVersions implements api.Store. It returns all items in one page.
func (m *Store) ProfileVersions(_ context.Context, idOrName string, _ int, _ string) ([]profile.Version, string, error) {
	leave, err := m.enter("ProfileVersions")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	for _, row := range m.profiles {
		newest := row.versions[len(row.versions)-1]
		if newest.ID != idOrName && (newest.Name != idOrName || row.deleted) {
			continue
		}
		var out []profile.Version
		for _, p := range slices.Backward(row.versions) {
			out = append(out, profile.Version{ProfileID: p.ID, Version: p.Version, CreatedAt: p.CreatedAt})
		}
		return out, "", nil
	}
	return nil, "", failure.Errorf(failure.NoProfile, "there is no profile %s", idOrName)
}

// ProfileCreate implements api.Store.
func (m *Store) ProfileCreate(_ context.Context, p profile.Profile) (profile.Profile, error) {
	leave, err := m.enter("ProfileCreate")
	if err != nil {
		return profile.Profile{}, err
	}
	defer leave()
	if m.profileNamed(p.Name) != "" {
		return profile.Profile{}, failure.Errorf(failure.NameTaken, "another profile has this name")
	}
	p.Version, p.CreatedAt, p.UpdatedAt = 1, time.Now(), time.Now()
	m.profiles = append(m.profiles, &profileRow{versions: []profile.Profile{p}})
	return p, nil
}

// ProfileUpdate implements api.Store.
func (m *Store) ProfileUpdate(_ context.Context, p profile.Profile, version int64) (profile.Profile, error) {
	leave, err := m.enter("ProfileUpdate")
	if err != nil {
		return profile.Profile{}, err
	}
	defer leave()
	if id := m.profileNamed(p.Name); id != "" && id != p.ID {
		return profile.Profile{}, failure.Errorf(failure.NameTaken, "another profile has this name")
	}
	for _, row := range m.profiles {
		newest := row.versions[len(row.versions)-1]
		if newest.ID != p.ID || row.deleted {
			continue
		}
		if version != 0 && version != newest.Version {
			return profile.Profile{}, failure.Errorf(failure.Conflict, "it was changed in the meantime")
		}
		p.Version, p.CreatedAt, p.UpdatedAt = newest.Version+1, newest.CreatedAt, time.Now()
		row.versions = append(row.versions, p)
		return p, nil
	}
	return profile.Profile{}, failure.Errorf(failure.NoProfile, "there is no profile %s", p.ID)
}

// ProfileDelete implements api.Store.
func (m *Store) ProfileDelete(_ context.Context, id string) error {
	leave, err := m.enter("ProfileDelete")
	if err != nil {
		return err
	}
	defer leave()
	for _, row := range m.profiles {
		if row.versions[0].ID == id && !row.deleted {
			row.deleted = true
			return nil
		}
	}
	return failure.Errorf(failure.NoProfile, "there is no profile %s", id)
}

func (m *Store) profileNamed(name string) string {
	for _, row := range m.profiles {
		if newest := row.versions[len(row.versions)-1]; newest.Name == name && !row.deleted {
			return newest.ID
		}
	}
	return ""
}

package temporald

import (
	"fmt"
	"maps"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/searchattribute/sadefs"
)

// addSearchAttributes returns aliases (column to attribute name) with the wanted attributes added,
// and whether that changed anything. The visibility tables have a fixed number of columns per type,
// each of which a namespace may name. The arguments are not modified.
func addSearchAttributes(
	aliases map[string]string, wanted map[string]enumspb.IndexedValueType,
) (map[string]string, bool, error) {
	columns := sadefs.GetDBIndexSearchAttributes(nil).CustomSearchAttributes
	sorted := slices.Sorted(maps.Keys(columns))

	columnOf := make(map[string]string, len(aliases))
	for column, name := range aliases {
		columnOf[name] = column
	}

	result := make(map[string]string, len(aliases)+len(wanted))
	maps.Copy(result, aliases)
	changed := false
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		kind := wanted[name]
		if !sadefs.IsMappable(name) || sadefs.IsReserved(name) {
			return nil, false, fmt.Errorf("search attribute %s: the name belongs to Temporal", name)
		}
		if column, ok := columnOf[name]; ok {
			if columns[column] != kind {
				return nil, false, fmt.Errorf("search attribute %s: exists with type %s, want %s", name, columns[column], kind)
			}
			continue
		}
		i := slices.IndexFunc(sorted, func(column string) bool {
			_, taken := result[column]
			return columns[column] == kind && !taken
		})
		if i < 0 {
			return nil, false, fmt.Errorf("search attribute %s: no column of type %s is free", name, kind)
		}
		result[sorted[i]] = name
		changed = true
	}
	return result, changed, nil
}

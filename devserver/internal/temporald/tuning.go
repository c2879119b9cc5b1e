package temporald

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/server/common/dynamicconfig"
	"gopkg.in/yaml.v3"
)

// tuning has the settings for a server with one shard and few users.
var tuning = map[string]string{
	// A shard reads each of its queues 20 times a second by default, which suits the thousands of
	// shards of a cluster. Here it would delay a single signal, start or search by 50 ms.
	"history.transferProcessorMaxPollRPS":   "2000",
	"history.timerProcessorMaxPollRPS":      "2000",
	"history.visibilityProcessorMaxPollRPS": "2000",
	"history.outboundProcessorMaxPollRPS":   "2000",

	// Partitions spread a task queue over machines. With one machine, a task may only wait in
	// another partition than its poller.
	"matching.numTaskqueueReadPartitions":  "1",
	"matching.numTaskqueueWritePartitions": "1",

	// By default, the eleventh concurrent update of one workflow is refused, and the client retries
	// it after half a second or more.
	"history.maxInFlightUpdates": "100",

	// Nothing leaves this machine.
	"frontend.enableServerVersionCheck": "false",
}

// dynamicConfig returns the tuning with the overrides applied. An unknown key or an invalid value
// is an error, because the server itself would ignore it.
func dynamicConfig(overrides map[string]string) (dynamicconfig.StaticClient, error) {
	values := maps.Clone(tuning)
	for key, value := range overrides {
		// Keys are case-insensitive; an override must replace what it overrides.
		for tuned := range values {
			if dynamicconfig.MakeKey(tuned) == dynamicconfig.MakeKey(key) {
				delete(values, tuned)
			}
		}
		values[key] = value
	}

	static := make(dynamicconfig.StaticClient, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		constrained, err := loadDynamicValue(key, values[key])
		if err != nil {
			return nil, fmt.Errorf("dynamic config %s=%s: %w", key, values[key], err)
		}
		static[dynamicconfig.MakeKey(key)] = constrained
	}
	return static, nil
}

// loadDynamicValue parses one value as the server parses its configuration files.
func loadDynamicValue(key, value string) ([]dynamicconfig.ConstrainedValue, error) {
	var parsed any
	if err := yaml.Unmarshal([]byte(value), &parsed); err != nil {
		return nil, fmt.Errorf("parse value: %w", err)
	}
	document, err := yaml.Marshal([]map[string]any{{"value": parsed}})
	if err != nil {
		return nil, fmt.Errorf("encode value: %w", err)
	}
	var loader dynamicconfig.YamlLoader
	loader.LoadValue(dynamicconfig.MakeKey(key), document)
	if err := errors.Join(append(loader.Errors, loader.Warnings...)...); err != nil {
		return nil, err
	}
	return loader.Map[dynamicconfig.MakeKey(key)], nil
}

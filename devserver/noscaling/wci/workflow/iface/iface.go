// Package iface has the shapes of worker controllers that a server names.
package iface

import (
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
)

// ComputeProviderType names a provider that starts workers.
type ComputeProviderType string

// ScalingAlgorithmType names an algorithm that decides their number.
type ScalingAlgorithmType string

// ComputeProviderSpec is the provider of a group's workers.
type ComputeProviderSpec struct {
	ProviderType  ComputeProviderType
	Config        *commonpb.Payload
	NexusEndpoint string
}

// ScalingAlgorithmSpec is the algorithm that decides the number of a group's workers.
type ScalingAlgorithmSpec struct {
	ScalingAlgorithm ScalingAlgorithmType
	Config           *commonpb.Payload
}

// ScalingGroupSpec is a group of workers.
type ScalingGroupSpec struct {
	TaskTypes []enumspb.TaskQueueType
	Compute   ComputeProviderSpec
	Scaling   *ScalingAlgorithmSpec
}

// ScalingGroupSpecUpdate changes a group of workers.
type ScalingGroupSpecUpdate struct {
	Spec       ScalingGroupSpec
	UpdateMask []string
}

// WorkerControllerInstanceSpec has all groups of a version.
type WorkerControllerInstanceSpec struct {
	ScalingGroupSpecs map[string]ScalingGroupSpec
}

// ValidationResult reports whether a provider accepted a version's groups.
type ValidationResult string

// ValidationResultFailed is the result that has a message.
const ValidationResultFailed ValidationResult = "failed"

// ValidationStatus is the result of the last validation. Workflows receive it as JSON.
type ValidationStatus struct {
	Status             ValidationResult `json:"status"`
	LastValidationTime time.Time        `json:"last_validation_time"`
	ErrMessage         string           `json:"err_message,omitempty"`
}

// QueryDescribeWorkerControllerInstanceResponse describes a worker controller.
type QueryDescribeWorkerControllerInstanceResponse struct {
	Spec             *WorkerControllerInstanceSpec
	ValidationStatus *ValidationStatus
}

// UpdateWorkerControllerInstanceResponse is the state of a worker controller after an update.
type UpdateWorkerControllerInstanceResponse struct {
	Spec *WorkerControllerInstanceSpec
}

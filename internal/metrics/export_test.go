package metrics

// NamesOfOneNode returns the names of the metrics that a service without a cluster has. Such a
// service stores its data in a journal.
func NamesOfOneNode() []string {
	var names []string
	for _, r := range table {
		if r.needs != itsCluster {
			names = append(names, r.name)
		}
	}
	return names
}

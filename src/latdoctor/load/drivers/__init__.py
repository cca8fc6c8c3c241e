"""The same load plan for other load generators, where one machine is not enough: a locustfile, or a k6 script."""

"""The nonlinear solver: Pyomo models as sums of exponentials, solved by IPOPT."""

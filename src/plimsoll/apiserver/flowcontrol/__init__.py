"""API priority and fairness: requests are classified by FlowSchemas, and each priority level shares its seats
fairly between flows. START HERE: `flow_controller.py`.
"""
